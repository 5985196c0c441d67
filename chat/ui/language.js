// Runs before Gradio: the language that was chosen, by ?lang= or by the switch, is the browser's.
(() => {
  const asked = new URLSearchParams(location.search).get("lang");
  if (asked === "en" || asked === "zh") {
    document.cookie = `pageturn_lang=${asked}; path=/; max-age=31536000; samesite=lax`;
  }
  const chosen = document.cookie.match(/(?:^|; )pageturn_lang=(en|zh)/)?.[1];
  if (!chosen) return;
  const language = chosen === "zh" ? "zh-CN" : "en";
  Object.defineProperty(navigator, "language", { get: () => language });
  Object.defineProperty(navigator, "languages", { get: () => [language] });
})();
