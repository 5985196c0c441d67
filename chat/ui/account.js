// Where people log in, the header says who this is and offers the way out.
(() => {
  const name = window.gradio_config?.username; // known before Gradio adds this script to the page
  if (!name) return;
  document.documentElement.dataset.account = "yes";
  document.documentElement.style.setProperty("--pt-account", JSON.stringify(name));

  document.addEventListener("click", async (event) => {
    if (!event.target.closest("[data-logout]")) return;
    // Posted: an address that logs out could be put into any page as a picture's.
    await fetch("logout", { method: "POST" });
    location.reload();
  });
})();
