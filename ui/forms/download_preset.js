(text) => {
  if (!text) return;
  const name = /^name: "?([a-z0-9-]+)/.exec(text)?.[1] ?? "preset";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/yaml" }));
  link.download = name + ".yaml";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
