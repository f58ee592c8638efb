// A button on each block of code that copies its text. Output of a program has none.
for (const block of document.querySelectorAll("div.highlight")) {
  if (block.closest(".highlight-text")) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(block.querySelector("pre").textContent);
      button.textContent = "Copied";
    } catch {
      // A page that is opened as a file may not write to the clipboard.
      getSelection().selectAllChildren(block.querySelector("pre"));
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  block.append(button);
}
