"use strict";
// The output of running cells as it comes, of any client, and Ctrl+Enter in the field of a cell. Pages work
// without this.
(() => {
  const live = document.getElementById("live");
  const status = document.getElementById("running");
  const code = document.getElementById("code");
  const LOOK_AGAIN = 2000; // milliseconds: a page of an idle runtime holds no connection

  const add = (text, kind) => {
    const follows = live.scrollTop + live.clientHeight >= live.scrollHeight - 8;
    const part = document.createElement("span");
    part.className = kind;
    part.textContent = text;
    live.append(part);
    while (live.childNodes.length > 1000) live.firstChild.remove();
    live.hidden = false;
    if (follows) live.scrollTop = live.scrollHeight;
  };

  // A page is not loaded again while someone writes a cell there.
  const load = (otherwise) => {
    if (code === null || code.value === "") location.reload();
    else status.textContent = otherwise;
  };

  // running: whether the page knows of a cell.
  const watch = (running) => {
    const source = new EventSource(live.dataset.source);
    source.addEventListener("output", (event) => {
      const { stream, text } = JSON.parse(event.data);
      add(text, stream);
    });
    source.addEventListener("next", () => live.replaceChildren());
    source.addEventListener("missed", (event) => {
      add(`\n[${event.data} characters came too fast to be shown here]\n`, "missed");
    });
    source.addEventListener("status", (event) => {
      const { step, author, memory } = JSON.parse(event.data);
      const doing = step === null ? "A cell waits" : `Step ${step} is running`;
      const text = `${doing}${author ? ` for ${author}` : ""}, with ${Math.round(memory / 1048576)} MiB of memory.`;
      if (status.textContent !== text) status.textContent = text;
      if (!running) load(text);
      running = true;
    });
    source.addEventListener("end", () => {
      source.close();
      if (running) load("The cell has ended. Load this page again to see its step.");
      setTimeout(look, LOOK_AGAIN);
    });
  };

  const look = () => {
    if (document.hidden) setTimeout(look, LOOK_AGAIN);
    else watch(false);
  };

  if (live !== null && status !== null) {
    if (live.dataset.busy === "") watch(true);
    else setTimeout(look, LOOK_AGAIN);
  }
  document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && field instanceof HTMLTextAreaElement) {
      event.preventDefault();
      field.form.requestSubmit();
    }
  });
})();
