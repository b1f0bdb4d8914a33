// What is asked of the service. A failure is an error with its words; a missing token is asked for, once for all.

const KEY = "heat-ood token";
const SILENT = "The service does not answer. Is it running?";
let gate = null;

export class Failed extends Error {}

export async function get(path) {
  const response = await ask(path);
  return response.json();
}

export async function blob(path) {
  const response = await ask(path);
  return response.blob();
}

export async function score(file, name, signal) {
  const form = new FormData();
  form.append("image", file, name);
  const response = await ask("v1/score", { method: "POST", body: form, signal });
  const answer = await response.json();
  return { fpr: answer.fpr, ...answer.results[0] };
}

async function ask(path, options = {}) {
  for (;;) {
    await gate;
    const token = sessionStorage.getItem(KEY);
    const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
    const response = await fetch(path, { ...options, headers, cache: "no-store" }).catch(unreachable);
    if (response.ok) return response;
    if (response.status !== 401) throw new Failed(await words(response));
    if (sessionStorage.getItem(KEY) === token) gate ??= unlock(token !== null).finally(() => { gate = null; });
  }
}

function unreachable(error) {
  throw error.name === "AbortError" ? error : new Failed(SILENT);
}

async function words(response) {
  const answer = await response.json().catch(() => null);
  if (typeof answer?.error === "string") return answer.error;
  return `The service answered ${response.status} and no more. Its log may say why.`;
}

function unlock(refused) {
  const dialog = document.getElementById("gate");
  const field = document.getElementById("token");
  if (refused) document.getElementById("gate-words").textContent = "This token was refused. Try another.";
  field.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const keep = (event) => {
      event.preventDefault();
      if (field.value.trim() === "") return;
      try {
        new Headers({ Authorization: `Bearer ${field.value.trim()}` });
      } catch {
        document.getElementById("gate-words").textContent = "This token has characters that none has. Try another.";
        return;
      }
      sessionStorage.setItem(KEY, field.value.trim());
      dialog.removeEventListener("cancel", stay);
      document.getElementById("gate-form").removeEventListener("submit", keep);
      dialog.close();
      resolve();
    };
    const stay = (event) => event.preventDefault();
    dialog.addEventListener("cancel", stay);
    document.getElementById("gate-form").addEventListener("submit", keep);
  });
}
