// What the page does by itself: which part is in front, the address, and clicks in our own HTML.
// Gradio calls the functions of `pageturn` from its components (js_on_load) and events (js).
(() => {
  const root = document.documentElement;
  const pageturn = (window.pageturn = {});
  root.dataset.pane = "chat"; // the part in front where there is room for one
  root.dataset.side = "sources"; // the part beside the answer where there is room for it
  root.lang = navigator.language || "en";

  pageturn.go = (part) => {
    root.dataset.pane = part;
    if (part === "sources" || part === "documents") root.dataset.side = part;
    press();
  };

  const press = () => {
    for (const button of document.querySelectorAll("[data-go]")) {
      const beside = button.closest(".pt-side-nav");
      const current = beside ? root.dataset.side : root.dataset.pane;
      button.setAttribute("aria-pressed", String(button.dataset.go === current));
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-go]");
    if (button) pageturn.go(button.dataset.go);
  });
  new MutationObserver((_, observer) => {
    if (!document.querySelector(".pt-side-nav")) return;
    observer.disconnect();
    press();
  }).observe(document, { childList: true, subtree: true });

  // The conversation of a tab stands in its address; the stored one is that of the last visit.
  let recalled = false; // Gradio tells of the stored one before the address was read
  pageturn.recall = (stored) => {
    recalled = true;
    return new URLSearchParams(location.search).get("c") ?? stored ?? "";
  };
  pageturn.remember = (id) => {
    if (!recalled) return [];
    const address = new URL(location.href);
    if (id) address.searchParams.set("c", id);
    else address.searchParams.delete("c");
    history.replaceState(history.state, "", address);
    return [];
  };

  // A first click asks, a second one does it, and one elsewhere means no. The list is drawn anew
  // whenever a document changes: what was asked stays asked.
  pageturn.documents = (element, trigger, watch) => {
    let asked = null; // a document

    const ask = (id) => {
      asked = id;
      for (const button of element.querySelectorAll("[data-remove]")) {
        const isAsked = button.dataset.remove === asked;
        if (isAsked) button.dataset.asked = "yes";
        else delete button.dataset.asked;
        button.textContent = isAsked ? button.dataset.sure : "";
      }
    };

    watch("value", () => ask(asked));
    document.addEventListener("click", (event) => {
      const id = event.target.closest?.("[data-remove]")?.dataset.remove ?? null;
      if (id && id === asked) trigger("remove", { document: id });
      if (asked || id) ask(id === asked ? null : id);
    });
  };

  // Markers and cost lines stand in the transcript; what they show stands in `element`.
  pageturn.sources = (element, trigger, watch) => {
    let wanted = null; // { turn, number } until the panel shows it
    let picked = ""; // the turn that the panel was last asked for
    pageturn.picked = () => picked;

    const show = () => {
      if (!wanted) return;
      const panel = element.querySelector(`[data-shown-turn="${CSS.escape(wanted.turn)}"]`);
      if (!panel) return;
      for (const card of panel.querySelectorAll(".pt-card[data-current]")) {
        delete card.dataset.current;
      }
      const name = wanted.number && CSS.escape(wanted.number);
      const card = name
        ? panel.querySelector(`.pt-card[data-number="${name}"], .pt-card[data-quotes~="${name}"]`)
        : null;
      wanted = null;
      if (card) {
        card.dataset.current = "true";
        card.querySelector(".pt-page-picture")?.setAttribute("open", "");
      }
      const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
      (card ?? panel).scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
    };

    const open = (turn, number) => {
      wanted = { turn, number };
      pageturn.go("sources");
      if (element.querySelector(`[data-shown-turn="${CSS.escape(turn)}"]`)) show();
      else {
        picked = turn;
        trigger("pick");
      }
    };

    watch("value", () => requestAnimationFrame(show));
    document.addEventListener("click", (event) => {
      const marker = event.target.closest?.('a[href*="#source-"]');
      const row = event.target.closest?.("[data-turn]");
      const unsupported = event.target.closest?.('a[href*="#unsupported-"]');
      if (unsupported) {
        // What the mark means stands under the answer, where a finger can read it too.
        event.preventDefault();
        const legend = document.getElementById(unsupported.hash.slice(1));
        legend?.scrollIntoView({ block: "nearest" });
        legend?.animate?.({ opacity: [0.2, 1] }, 600);
      } else if (marker) {
        event.preventDefault();
        const [, turn, number] = marker.hash.match(/^#source-(.+)-(q?\d+)$/) ?? [];
        if (turn) open(turn, number);
      } else if (row) {
        open(row.dataset.turn, null);
      }
    });
  };
})();
