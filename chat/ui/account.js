// Where people log in, the header says who this is and offers the way out.
document.addEventListener("DOMContentLoaded", () => {
  const name = window.gradio_config?.username;
  if (!name) return;
  document.documentElement.dataset.account = "yes";
  document.documentElement.style.setProperty("--pt-account", JSON.stringify(name));
});
