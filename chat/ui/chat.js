// Clicks in the conversation list, the transcript and what stands around the composer.
(() => {
  const root = document.documentElement;
  const pageturn = (window.pageturn ??= {});

  // What is going on shows that it does: a dot that comes and goes.
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  setInterval(() => {
    const beats = !calm.matches && !("beat" in root.dataset) && document.querySelector(".pt-progress");
    if (beats) root.dataset.beat = "";
    else delete root.dataset.beat;
  }, 700);

  // The language: a cookie, read by the server too, and the page anew.
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("[data-language]")) return;
    const language = document.documentElement.lang.startsWith("zh") ? "en" : "zh";
    document.cookie = `pageturn_lang=${language}; path=/; max-age=31536000; samesite=lax`;
    const address = new URL(location.href);
    address.searchParams.delete("lang");
    location.replace(address);
  });

  // The menu of a conversation. It stands outside of Gradio's part of the page, since the list is
  // drawn anew whenever a conversation changes.
  const menu = document.createElement("div");
  menu.id = "pt-menu";
  menu.popover = "auto";
  menu.setAttribute("role", "menu");

  const entry = (text, act) => {
    const button = document.createElement(typeof act === "string" ? "a" : "button");
    button.setAttribute("role", "menuitem");
    button.textContent = text;
    if (typeof act === "string") {
      button.href = act;
      button.download = "";
      button.addEventListener("click", () => menu.hidePopover());
    } else {
      button.type = "button";
      button.addEventListener("click", () => act(button));
    }
    menu.append(button);
    return button;
  };

  const rename = (words, title, done) => {
    const dialog = document.createElement("dialog");
    dialog.id = "pt-rename";
    const form = Object.assign(document.createElement("form"), { method: "dialog" });
    const label = Object.assign(document.createElement("label"), { textContent: words.label });
    const input = Object.assign(document.createElement("input"), { value: title, maxLength: 60 });
    input.dir = "auto";
    const ok = Object.assign(document.createElement("button"), { textContent: words.rename });
    label.append(input);
    form.append(label, ok);
    dialog.append(form);
    form.addEventListener("submit", () => {
      if (input.value.trim() && input.value !== title) done(input.value.trim());
    });
    dialog.addEventListener("close", () => dialog.remove());
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    (document.querySelector(".gradio-container") ?? document.body).append(dialog);
    dialog.showModal();
    input.select();
  };

  const openMenu = (button, trigger) => {
    const words = button.closest(".pt-list").dataset;
    const session = button.dataset.menu;
    const title = button.dataset.title;
    menu.replaceChildren();
    entry(words.rename, () => {
      menu.hidePopover();
      rename({ label: words.renameLabel, rename: words.rename }, title, (text) =>
        trigger("rename", { session, title: text }),
      );
    });
    entry(words.exportMarkdown, `export/${encodeURIComponent(session)}.md`);
    entry(words.exportJson, `export/${encodeURIComponent(session)}.json`);
    const remove = entry(words.delete, (self) => {
      if (self.dataset.asked) {
        menu.hidePopover();
        trigger("remove", { session });
      } else {
        self.dataset.asked = "yes";
        self.textContent = words.deleteSure;
      }
    });
    remove.className = "pt-danger";
    (document.querySelector(".gradio-container") ?? document.body).append(menu);
    menu.showPopover();
    const at = button.getBoundingClientRect();
    const width = menu.offsetWidth;
    const left = root.dir === "rtl" ? at.left : at.right - width;
    menu.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
    menu.style.top = `${Math.min(at.bottom + 4, innerHeight - menu.offsetHeight - 8)}px`;
    menu.querySelector("button").focus();
  };
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const items = [...menu.children];
    items.at((items.indexOf(document.activeElement) + step) % items.length).focus();
  });

  pageturn.history = (element, trigger) => {
    element.addEventListener("click", (event) => {
      const open = event.target.closest("[data-open]");
      const more = event.target.closest("[data-menu]");
      if (open) {
        trigger("open", { session: open.dataset.open });
        pageturn.follow();
        pageturn.go("chat");
      } else if (more) {
        openMenu(more, trigger);
      }
    });
  };

  // A page that could not be drawn says so.
  document.addEventListener(
    "error",
    (event) => {
      const image = event.target;
      if (!(image instanceof HTMLImageElement) || !image.dataset.failed) return;
      image.closest("a").replaceWith(image.dataset.failed);
    },
    true,
  );

  // The drawer
  const drawer = (open) => {
    if (open) root.dataset.drawer = "open";
    else delete root.dataset.drawer;
    for (const button of document.querySelectorAll("[data-drawer][aria-expanded]")) {
      button.setAttribute("aria-expanded", String(open));
    }
    if (open) document.querySelector("#pt-drawer [data-drawer]")?.focus({ preventScroll: true });
  };

  const composer = () => document.querySelector("#pt-composer textarea");

  pageturn.turns = (element, trigger) => {
    document.addEventListener("click", (event) => {
      const on = (selector) => event.target.closest?.(selector);
      let button;
      if ((button = on("[data-cost]"))) {
        const detail = button.closest(".pt-cost").nextElementSibling;
        detail.hidden = !detail.hidden;
        button.setAttribute("aria-expanded", String(!detail.hidden));
      } else if ((button = on("[data-retry]"))) {
        trigger("retry", { turn: button.dataset.retry });
        pageturn.follow();
      } else if ((button = on("[data-edit]"))) {
        trigger("edit", { turn: button.dataset.edit });
        composer()?.focus();
      } else if ((button = on("[data-show]"))) {
        trigger("show", { turn: button.dataset.show });
      } else if ((button = on("[data-suggest]"))) {
        trigger("suggest", { question: button.dataset.suggest });
        pageturn.follow();
      } else if (on("[data-earlier]")) {
        pageturn.hold();
        trigger("earlier", {});
      } else if (on("#pt-composer .submit-button")) {
        pageturn.follow();
      } else if (on("[data-cancel-edit]")) {
        trigger("cancel", {});
        composer()?.focus();
      } else if (on("[data-drawer]:not(:root)")) {
        drawer(root.dataset.drawer !== "open");
      } else if (root.dataset.drawer === "open" && !on("#pt-drawer, .options, :root > body > dialog")) {
        drawer(false);
      }
    });

    document.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === composer()) pageturn.follow();
    });

    // Esc closes what is open first, and stops the answer where nothing is.
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || event.isComposing) return;
      if (document.querySelector("#pt-menu:popover-open, dialog[open]")) return;
      if (root.dataset.drawer === "open") {
        drawer(false);
        document.querySelector("#pt-scope [data-drawer]")?.focus();
      } else if (document.querySelector("[data-cancel-edit]")) {
        trigger("cancel", {});
      } else {
        document.querySelector("#pt-composer .stop-button")?.click();
      }
    });
  };
})();
