/* The rows of a term from the leaf pages of an FTS5 segment, and how often each holds it (SQLite's fts5_index.c describes the
 * format). FTS5's own interface gives one occurrence at a time, which takes forty times as long.
 *
 * A page: 2 bytes where the first row number is that does not follow a term of this page (0: none); 2 bytes where the footer
 * begins; terms with their rows; the footer: where each term is. A row: its number (after the first of a list the difference to
 * the one before; in full on a new page), the size of its positions in bytes x 2 (+ 1: deleted), the positions. Only positions may be cut by the
 * end of a page. */
#include "export.h"

#include <stdint.h>
#include <string.h>

enum { DAMAGED = -1, TOO_MANY = -2, HEADER = 4, LONGEST_TERM = 4096 };

typedef struct {
    const uint8_t *at, *end;
} Bytes;

typedef struct {
    const uint8_t *start;
    int64_t footer, size, first_row, first_term; /* offsets; first_row and first_term 0 where there is none */
} Page;

/* A number of up to nine bytes, seven bits each, the ninth eight; 0 says that the bytes ended. */
static int read_number(Bytes *from, uint64_t *value)
{
    *value = 0;
    for (int i = 0; i < 9; i++) {
        if (from->at >= from->end) return 0;
        const uint8_t byte = *from->at++;
        if (i == 8) {
            *value = *value << 8 | byte;
            return 1;
        }
        *value = *value << 7 | (byte & 0x7F);
        if (byte < 0x80) return 1;
    }
    return 0;
}

static int read_page(const uint8_t *data, int64_t size, Page *page)
{
    if (size < HEADER) return 0;
    *page = (Page){data, data[2] << 8 | data[3], size, data[0] << 8 | data[1], 0};
    if (page->footer < HEADER || page->footer > size || page->first_row >= page->footer) return 0;
    if (page->footer < size) {
        Bytes footer = {data + page->footer, data + size};
        uint64_t first;
        if (!read_number(&footer, &first) || first < HEADER || (int64_t)first >= page->footer) return 0;
        page->first_term = (int64_t)first;
    }
    return 1;
}

/* Where the rows of a term begin on its page and end there (1), that it is not there (0), or DAMAGED. */
static int find_term(const Page *page, const uint8_t *term, int64_t term_size, Bytes *rows, int *last)
{
    uint8_t held[LONGEST_TERM];
    uint64_t held_size = 0, at = 0, step;
    Bytes footer = {page->start + page->footer, page->start + page->size};
    int first = 1, more = read_number(&footer, &step);
    while (more) {
        at += step;
        if (at < HEADER || (int64_t)at >= page->footer) return DAMAGED;
        Bytes here = {page->start + at, page->start + page->footer};
        uint64_t shared = 0, fresh;
        if (!first && !read_number(&here, &shared)) return DAMAGED;
        if (!read_number(&here, &fresh)) return DAMAGED;
        if (shared > held_size || fresh > LONGEST_TERM - shared || fresh > (uint64_t)(here.end - here.at)) return DAMAGED;
        memcpy(held + shared, here.at, fresh);
        held_size = shared + fresh;
        first = 0;
        more = footer.at < footer.end && read_number(&footer, &step);
        if (held_size == (uint64_t)term_size && memcmp(held, term, held_size) == 0) {
            *last = !more;
            const uint64_t end = more ? at + step : (uint64_t)page->footer;
            if (end > (uint64_t)page->footer) return DAMAGED;
            *rows = (Bytes){here.at + fresh, page->start + end};
            return rows->at <= rows->end ? 1 : DAMAGED;
        }
    }
    return 0;
}

/* Positions are numbers one after the other: as many as there are bytes that end one. */
static int32_t count_positions(const uint8_t *from, int64_t size)
{
    int32_t count = 0;
    for (int64_t i = 0; i < size; i++) count += from[i] < 0x80;
    return count;
}

/* Writes the term's rows and counts and returns how many there are, DAMAGED or TOO_MANY. *finished is 0 where the list goes on
 * behind the last of these pages. offsets has one more entry than there are pages. */
EXPORT int64_t fts5_postings(const uint8_t *data, const int64_t *offsets, int64_t pages, const uint8_t *term,
                             int64_t term_size, int64_t *rows, int32_t *counts, int64_t capacity, int32_t *finished)
{
    Page page;
    Bytes here;
    int last = 0, in_full = 1;
    int64_t found = 0, left = 0; /* rows so far; bytes of positions that are still to come */
    uint64_t row = 0, number, size;
    *finished = 1;
    if (pages < 1 || !read_page(data, offsets[1], &page)) return DAMAGED;
    const int there = find_term(&page, term, term_size, &here, &last);
    if (there <= 0) return there;
    for (int64_t at = 1;; at++) {
        while (here.at < here.end) {
            if (left > 0) {
                const int64_t some = left < here.end - here.at ? left : here.end - here.at;
                counts[found - 1] += count_positions(here.at, some);
                here.at += some;
                left -= some;
                continue;
            }
            if (!read_number(&here, &number) || !read_number(&here, &size)) return DAMAGED;
            row = in_full ? number : row + number;
            in_full = 0;
            left = (int64_t)(size >> 1);
            if (left < 0) return DAMAGED;
            if (left == 0) continue; /* deleted here; the row itself says so, too */
            if (found >= capacity) return TOO_MANY;
            rows[found] = (int64_t)row;
            counts[found++] = 0;
        }
        if (!last) return left > 0 ? DAMAGED : found;
        if (at >= pages) {
            *finished = 0;
            return found;
        }
        if (!read_page(data + offsets[at], offsets[at + 1] - offsets[at], &page)) return DAMAGED;
        const int64_t end = page.first_term ? page.first_term : page.footer;
        last = page.first_term == 0;
        in_full = 1;
        if (left > 0) {
            const int64_t stop = page.first_row ? page.first_row : end;
            if (left > stop - HEADER && (page.first_row || page.first_term)) return DAMAGED;
            const int64_t some = left < stop - HEADER ? left : stop - HEADER;
            counts[found - 1] += count_positions(page.start + HEADER, some);
            left -= some;
        }
        if (page.first_row > end) return DAMAGED;
        here = (Bytes){page.start + (page.first_row ? page.first_row : end), page.start + end};
    }
}
