"""What `streamwell serve` says when it listens: what is where, and how to try it."""

from __future__ import annotations

import sys
import threading
import webbrowser

from streamwell import __version__
from streamwell.models import BUILT_IN
from streamwell.settings import Settings

#: Addresses that stand for all of the machine's: a client needs one of them.
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})


def greet(settings: Settings) -> None:
    """Say it, and open the page if that was asked for."""
    print(banner(settings), file=sys.stderr, flush=True)
    if settings.open:
        # a browser may take its time, and some hold on to whoever opens them
        opening = threading.Thread(target=_open, args=(address(settings),), daemon=True)
        opening.start()


def address(settings: Settings) -> str:
    """A URL of the server, for clients on this machine."""
    host = "localhost" if settings.host in _WILDCARDS else settings.host
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def banner(settings: Settings) -> str:
    """Facts, and under them a block to be copied as it is."""
    base = address(settings)
    num_keys = len(settings.api_key + settings.admin_key)
    keys = f"{num_keys} set" if num_keys else "none (this machine only)"
    toy = "  (built in, toys)" if settings.models == tuple(BUILT_IN) else ""
    key = ' -H "authorization: Bearer $STREAMWELL_API_KEY"' if num_keys else ""
    return f"""\
streamwell {__version__}
  model  {", ".join(settings.models)}{toy}
  page   {base}
  api    {base}/v1
  keys   {keys}

curl -N {base}/v1/chat/completions{key} -H 'content-type: application/json' \\
  -d '{{"messages":[{{"role":"user","content":"Hello!"}}],"stream":true}}'
"""


def _open(url: str) -> None:
    if not webbrowser.open(url):
        print(f"streamwell: there is no browser to open {url} with", file=sys.stderr)
