async () => {
  await navigator.clipboard.writeText(window.location.href);
}
