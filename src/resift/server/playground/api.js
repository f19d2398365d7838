// Send requests with the API key of this tab. Prompt for the key if the server requires one.
const KEY = "resift-key";

export const key = () => sessionStorage.getItem(KEY) || "";

export function askForKey() {
  const dialog = document.getElementById("key-dialog");
  const form = document.getElementById("key-form");
  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, document.getElementById("key").value.trim());
      dialog.close();
      resolve();
    };
    dialog.showModal();
  });
}

export async function call(method, path, body) {
  const headers = { "content-type": "application/json" };
  if (key()) headers.authorization = `Bearer ${key()}`;
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  if (response.status === 401) {
    await askForKey();
    return call(method, path, body);
  }
  const data = await response.json();
  if (!response.ok) throw new Error(data.message || `The server returned status ${response.status}.`);
  return data;
}
