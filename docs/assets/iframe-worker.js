// Browsers start no worker from a page that is a file. There the search runs in a hidden frame instead.
if (location.protocol === 'file:') {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement('iframe');
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent('message', {data}));
      const script = this.inside.document.createElement('script');
      script.src = new URL(url, location.href);
      this.loaded = new Promise(resolve => { script.onload = resolve; });
      this.inside.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent('message', {data})));
    }

    terminate() {}
  };
}
