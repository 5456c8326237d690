"""The models in the box: where the packaged model folders lie."""

from importlib.resources import files
from pathlib import Path


def brooklet_path() -> Path:
    """Return the folder of the default model, in the Hugging Face layout."""
    # Transformers needs a real folder, which every wheel installation provides.
    return Path(str(files(__name__) / "brooklet"))
