// Format the current request as a curl command, a Python script or LangChain code.
const shellQuote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function asText(form, request, needsKey) {
  const base = location.origin;
  if (form === "curl") {
    const head = needsKey ? ' \\\n  -H "authorization: Bearer $RESIFT_KEY"' : "";
    return `curl ${base}/v1/search -H 'content-type: application/json'${head} \\\n  -d ${shellQuote(JSON.stringify(request))}\n`;
  }
  if (form === "python") {
    const head = needsKey ? ', "authorization": "Bearer " + os.environ["RESIFT_KEY"]' : "";
    return [
      "import json", ...(needsKey ? ["import os"] : []), "import urllib.request", "",
      `body = json.loads(${JSON.stringify(JSON.stringify(request))})`,
      `request = urllib.request.Request("${base}/v1/search", json.dumps(body).encode(),`,
      `                                 {"content-type": "application/json"${head}})`,
      "for hit in json.load(urllib.request.urlopen(request))[\"hits\"]:",
      '    print(hit["score"], hit["id"], hit["text"])', "",
    ].join("\n");
  }
  const key = needsKey ? 'os.environ["RESIFT_KEY"]' : '"none"';
  return [
    ...(needsKey ? ["import os", ""] : []),
    "from langchain_cohere import CohereRerank", "",
    `reranker = CohereRerank(model="rerank-v3.5", top_n=${request.k}, base_url="${base}", cohere_api_key=${key})`,
    "# retriever = ContextualCompressionRetriever(base_compressor=reranker, base_retriever=...)", "",
  ].join("\n");
}
