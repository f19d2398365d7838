"""The C files of the forward pass compile without a warning, and never read memory that is not theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from resift.models.native_code import LIBRARY, native_code

COMPILER = shutil.which("cc") or shutil.which("gcc")
FLAGS = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno"]

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

PROGRAM = """
#include <stdlib.h>
#include <string.h>
#include "bert.h"

int64_t resift_scratch(const Bert *, int32_t);
void resift_forward(const Bert *, const int32_t *, const int32_t *, int32_t, int32_t, float *, float *);

static void *memory(size_t size) { return memset(aligned_alloc(64, (size + 63) / 64 * 64), 1, size); }
static float *floats(size_t count) { return memset(memory(count * 4), 0, count * 4); }
static Dense dense(int32_t inputs, int32_t outputs)
{
    return (Dense){inputs, outputs, memory((size_t)inputs * outputs), memory((size_t)outputs * 4),
                   floats(outputs), floats(outputs)};
}

int main(void)
{
    const Norm norm = {floats(64), floats(64)};
    const Layer layer = {dense(64, 192), dense(64, 64), dense(64, 128), dense(128, 64), norm, norm};
    Bert bert = {64, 2, 128, 1, 0.5f, 1, {memory(640), 1, 0}, {memory(128), 1, 0}, floats(64 * 200),
                 norm, &layer, 1, dense(64, 64), dense(64, 64)};
    for (int32_t rows = 1; rows <= 200; rows += rows < 70 ? 1 : 13) {
        int32_t *ids = memory(rows * 4), *kinds = memory(rows * 4);
        memset(ids, 0, rows * 4), memset(kinds, 0, rows * 4);
        bert.classes = rows % 2, bert.on_each_side = rows % 3 == 0;
        float *scratch = malloc(resift_scratch(&bert, rows) * 4), *out = malloc(rows * 64 * 4);
        resift_forward(&bert, ids, kinds, rows, bert.classes ? 1 : rows, scratch, out);
        free(ids), free(kinds), free(scratch), free(out);
    }
    return 0;
}
"""


def compiled(folder: Path, program: str, *flags: str) -> Path:
    (folder / "main.c").write_text(program)
    target = folder / "program"
    sources = sorted(map(str, LIBRARY.parent.glob("*.c")))
    include = ["-I", str(LIBRARY.parent)]
    command = [str(COMPILER), *FLAGS, *flags, *include, "-o", str(target), str(folder / "main.c"), *sources]
    done = subprocess.run([*command, "-lm"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def test_it_compiles_without_a_warning(tmp_path):
    assert compiled(tmp_path, "int main(void) { return 0; }").exists()


@pytest.mark.skipif(native_code() is None, reason="no compiled code for this processor")
def test_every_length_stays_within_its_memory(tmp_path):
    """Rows of up to 200 tokens in buffers of exactly the size that was asked for, under a sanitizer."""
    flags = ("-fsanitize=address,undefined", "-fno-sanitize-recover", "-g")
    nothing = tmp_path / "nothing.c"
    nothing.write_text("int main(void) { return 0; }")
    if subprocess.run([str(COMPILER), *flags, "-o", os.devnull, str(nothing)], check=False).returncode != 0:
        pytest.skip("this compiler has no sanitizers")
    program = compiled(tmp_path, PROGRAM, *flags)
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
