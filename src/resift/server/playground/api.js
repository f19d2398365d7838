// Requests to the server with the key of this tab. A missing key is asked for once.
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
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  if (answer.status === 401) {
    await askForKey();
    return call(method, path, body);
  }
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.message || `The server answered ${answer.status}.`);
  return data;
}
