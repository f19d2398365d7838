// Read documents from the text box or from uploaded files.
export const SAMPLE = {
  query: "How was the speed of a ship measured?",
  documents: [
    "An anchor holds a vessel in place by gripping the sea floor with its flukes.",
    "A lighthouse warns ships of rocks with a beam that turns through the night.",
    "The moon pulls the oceans and makes the tides rise and fall twice a day.",
    "Drift is the sideways motion of a boat caused by wind or current.",
    "Sailors once measured speed by counting knots on a line let out astern.",
    "At anchor, a white light all round tells others that the ship is not moving.",
    "A sea anchor, dragged through the water, slows a boat that cannot reach the bottom.",
    "Fishing fleets follow the herring along the coast in spring.",
  ],
};

export function documentsIn(text) {
  const parts = /\n\s*\n/.test(text.trim()) ? text.split(/\n\s*\n/) : text.split("\n");
  return parts.map((part) => part.trim()).filter(Boolean);
}

export async function documentsFrom(files) {
  const documents = [];
  for (const file of files) {
    const text = await file.text();
    if (/\.jsonl?$/.test(file.name)) documents.push(...fromJson(text));
    else if (/\.csv$/.test(file.name)) documents.push(...text.split("\n").map((line) => line.trim()).filter(Boolean));
    else documents.push(...documentsIn(text));
  }
  return documents;
}

function fromJson(text) {
  let rows;
  try {
    rows = JSON.parse(text);
  } catch {
    rows = text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
  }
  return (Array.isArray(rows) ? rows : [rows])
    .map((row) => (typeof row === "string" ? row : row.text || row.content || row.title || ""))
    .filter(Boolean);
}
