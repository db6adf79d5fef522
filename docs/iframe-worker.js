// Browsers start no worker for a page that is read from a disk: the search runs in a frame that nobody sees instead.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.appendChild(frame);
      this.inner = frame.contentWindow;
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inner.importScripts = () => undefined;
      const script = frame.contentDocument.createElement("script");
      script.src = url;
      script.onload = () => {
        this.loaded = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      };
      frame.contentDocument.documentElement.appendChild(script);
    }
    postMessage(data) {
      if (this.loaded) this.inner.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
  };
