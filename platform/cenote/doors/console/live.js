"use strict";
// The output of a running cell as it comes, and Ctrl+Enter in the field of a cell. Pages work without this.
(() => {
  const live = document.getElementById("live");
  const status = document.getElementById("running");
  if (live !== null && status !== null) {
    const source = new EventSource(live.dataset.source);
    source.addEventListener("output", (event) => {
      const { stream, text } = JSON.parse(event.data);
      const follows = live.scrollTop + live.clientHeight >= live.scrollHeight - 8;
      const part = document.createElement("span");
      part.className = stream;
      part.textContent = text;
      live.append(part);
      while (live.childNodes.length > 1000) live.firstChild.remove();
      live.hidden = false;
      if (follows) live.scrollTop = live.scrollHeight;
    });
    source.addEventListener("next", () => live.replaceChildren());
    source.addEventListener("status", (event) => {
      const { step, author, memory } = JSON.parse(event.data);
      const running = step === null ? "A cell waits" : `Step ${step} is running`;
      const text = `${running}${author ? ` for ${author}` : ""}, with ${Math.round(memory / 1048576)} MiB of memory.`;
      if (status.textContent !== text) status.textContent = text;
    });
    source.addEventListener("end", () => {
      source.close();
      location.reload();
    });
  }
  document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && field instanceof HTMLTextAreaElement) {
      event.preventDefault();
      field.form.requestSubmit();
    }
  });
})();
