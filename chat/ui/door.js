// Gradio's form says nothing where the server has too many passwords to check.
(() => {
  const ask = window.fetch.bind(window);
  window.fetch = async (address, options) => {
    const answer = await ask(address, options);
    const { pathname } = new URL(address?.url ?? address, location);
    if (answer.status === 429 && pathname.endsWith("/login"))
      alert((await answer.clone().json()).detail);
    return answer;
  };
})();
