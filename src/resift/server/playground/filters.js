// Parse filters such as topic=food price>=10. Conditions are separated by spaces; quotes allow spaces in a value.
const TEST = /([^\s=<>!]+)\s*(!=|>=|<=|=|>|<)\s*(?:"([^"]*)"|(\S+))\s*/y;

export function parseFilter(text) {
  const where = {};
  TEST.lastIndex = 0;
  const line = text.trim();
  while (TEST.lastIndex < line.length) {
    const match = TEST.exec(line);
    if (!match) throw new Error(`The filter ${line} is incomplete. Write key=value, key!=value, key>value or key<value.`);
    const [, key, operator] = match;
    const value = match[3] ?? match[4];
    const tests = (where[key] ||= {});
    // Input from a text box has no type, so 7 matches both the number and the string.
    const typed = typedValue(value);
    if (operator === "=" || operator === "!=") tests[operator] = [...(tests[operator] || []), ...new Set([typed, value])];
    else tests[operator] = typed;
  }
  for (const [key, tests] of Object.entries(where)) {
    if (Object.keys(tests).length === 1 && tests["="]) where[key] = tests["="];
  }
  return where;
}

function typedValue(value) {
  if (/^(true|false)$/i.test(value)) return value.toLowerCase() === "true";
  return /^[+-]?\d+(\.\d+)?$/.test(value) ? Number(value) : value;
}
