"""The substitute for `import IPython` where it is not installed: its names for displaying, and a shell for magics.

The classes have IPython's names and behaviour, so that code which displays runs as in a notebook. The rest of IPython
(its terminal, its kernel, extensions) is missing, and importing it fails as usual.
"""

from __future__ import annotations

import base64
import builtins
import html
import mimetypes
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

from cenote_worker.jail.cells.magics import Magics
from cenote_worker.jail.output.display import Capture, DisplayHandle, Displays, RichOutput
from cenote_worker.process.pristine import BUILTINS

__builtins__ = BUILTINS

VERSION: Final = "9.0.0"
"""The IPython version that these names follow: libraries ask for it."""

_PICTURES: Final = ((b"\x89PNG", "png"), (b"\xff\xd8", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))


class Shell:
    """The result of `get_ipython()`. user_ns: the namespace."""

    def __init__(self, displays: Displays, magics: Magics) -> None:
        self._displays = displays
        self._magics = magics
        self.config: dict[str, Any] = {}
        self.events = _Events()

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return _shell_here, ()

    @property
    def user_ns(self) -> dict[str, object]:
        return self._magics.namespace

    def run_line_magic(self, magic_name: str, line: str = "", _stack_depth: int = 1) -> object:
        return self._magics.line(magic_name, line)

    def run_cell_magic(self, magic_name: str, line: str, cell: str) -> None:
        self._magics.cell(magic_name, line, cell)

    def magic(self, arg_s: str) -> object:
        name, _, rest = arg_s.lstrip("%").partition(" ")
        return self.run_line_magic(name, rest.strip())

    def system(self, cmd: str) -> None:
        self._magics.shell(cmd)

    def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> object:  # noqa: ARG002  (IPython's)
        lines = self._magics.shell_lines(cmd)
        return lines if split else "\n".join(lines)

    def captured(self, capture: Capture, **takes: bool) -> Callable[[], None]:
        return capture.begin(self._displays, **takes)

    def clear(self, wait: bool) -> None:
        self._displays.clear(wait)

    def update(self, obj: object, display_id: str, options: Mapping[str, Any]) -> None:
        self._displays.update(obj, display_id=display_id, **options)


class _Events:
    """Libraries register functions that IPython calls around its cells. None of them is called here."""

    def register(self, event: str, function: object) -> None:
        """Accepts it, and never calls it."""

    unregister = register


_shells: list[Shell] = []


def use(shell: Shell) -> None:
    """Sets what the functions of this module act on: there is one kernel in a process."""
    _shells[:] = [shell]


def _shell_here() -> Shell:
    return _shells[0]


def get_ipython() -> Shell:
    return _shell_here()


# -- functions --


def display(*objs: object, **options: Any) -> DisplayHandle | None:
    """The builtin `display`."""
    handle: DisplayHandle | None = builtins.display(*objs, **options)  # type: ignore[attr-defined]
    return handle


def clear_output(wait: bool = False) -> None:
    """Drops what the cell has printed and displayed so far. wait: when it next prints or displays something."""
    _shell_here().clear(wait)


def update_display(obj: object, *, display_id: str, **options: Any) -> None:
    """Shows an object in place of the one that was displayed with this `display_id`."""
    _shell_here().update(obj, display_id, options)


def publish_display_data(
    data: dict[str, object],
    metadata: object = None,
    *,
    transient: Mapping[str, object] | None = None,
    **options: Any,
) -> None:
    display(data, raw=True, metadata=metadata, transient=transient, **options)


def set_matplotlib_formats(*_formats: str, **_options: object) -> None:
    """Figures are PNG here."""


set_matplotlib_close = set_matplotlib_formats


def _displays_as(mime: str) -> Callable[..., None]:
    def show(*objs: object, raw: bool = False, metadata: object = None) -> None:
        for obj in objs:
            if raw:
                display({mime: obj}, raw=True, metadata=metadata)
            else:
                display(obj, include=[mime], metadata=metadata)

    return show


class capture_output:
    """Keeps what is printed and displayed in a `with` block."""

    def __init__(self, stdout: bool = True, stderr: bool = True, display: bool = True) -> None:
        self._takes = {"stdout": stdout, "stderr": stderr, "display": display}

    def __enter__(self) -> Capture:
        capture = Capture()
        self._stop = _shell_here().captured(capture, **self._takes)
        return capture

    def __exit__(self, *_error: object) -> None:
        self._stop()


# -- objects --


class DisplayObject:
    """Data of one MIME type: given, or read from a file or an address.

    data: may be the path of an existing file, or an http address.
    """

    _binary = False

    def __init__(
        self,
        data: Any = None,
        url: str | None = None,
        filename: str | os.PathLike[str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        if isinstance(data, os.PathLike):
            data = os.fspath(data)
        if isinstance(data, str) and filename is None and url is None:
            if data.startswith(("http://", "https://")):
                url, data = data, None
            elif len(data) < 4096 and "\0" not in data and os.path.isfile(data):  # noqa: PTH113  (a text, mostly)
                filename, data = data, None
        self.url = url
        self.filename = None if filename is None else os.fspath(filename)
        self.metadata = metadata or {}
        self.data = data
        self.reload()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} object>"

    def reload(self) -> None:
        """Reads the data again from its source."""
        if self.filename is not None:
            with open(self.filename, "rb") as file:
                self.data = self._decoded(file.read())
        elif self.url is not None and self.data is None:
            with urlopen(self.url) as answer:
                self.data = self._decoded(answer.read())

    def _decoded(self, data: bytes) -> str | bytes:
        return data if self._binary else data.decode("utf-8", "replace")


class TextDisplayObject(DisplayObject):
    """An object whose data is text."""


class Pretty(TextDisplayObject):
    def __repr__(self) -> str:
        return str(self.data)


class HTML(TextDisplayObject):
    def _repr_html_(self) -> str:
        return str(self.data)

    __html__ = _repr_html_


class Markdown(TextDisplayObject):
    def _repr_markdown_(self) -> str:
        return str(self.data)


class Latex(TextDisplayObject):
    def _repr_latex_(self) -> str:
        return str(self.data)


class Math(TextDisplayObject):
    def _repr_latex_(self) -> str:
        return rf"$\displaystyle {str(self.data).strip('$')}$"


class SVG(DisplayObject):
    def _repr_svg_(self) -> str:
        return str(self.data)


class JSON(DisplayObject):
    def __init__(
        self, data: Any = None, url: str | None = None, filename: Any = None, **options: Any
    ) -> None:
        super().__init__(data, url, filename, options)

    def _repr_json_(self) -> Any:
        return self.data


class GeoJSON(JSON):
    def _repr_mimebundle_(self, **_options: object) -> dict[str, Any]:
        return {"application/geo+json": self.data}


class Javascript(TextDisplayObject):
    def _repr_javascript_(self) -> str:
        return str(self.data)


class Code(TextDisplayObject):
    def __init__(
        self, data: Any = None, url: str | None = None, filename: Any = None, language: str | None = None
    ) -> None:
        self.language = language
        super().__init__(data, url, filename)

    def __repr__(self) -> str:
        return str(self.data)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self.data))}</pre>"


class Image(DisplayObject):
    """A picture. format: png, jpeg, gif or webp; by default the one that the data or the name has."""

    _binary = True

    def __init__(
        self,
        data: Any = None,
        url: str | None = None,
        filename: Any = None,
        format: str | None = None,
        embed: bool | None = None,
        width: int | None = None,
        height: int | None = None,
        metadata: dict[str, Any] | None = None,
        alt: str | None = None,
        **_options: Any,
    ) -> None:
        self.width, self.height, self.alt = width, height, alt
        is_address = isinstance(data, str) and data.startswith(("http://", "https://"))
        self.embed = embed if embed is not None else url is None and not is_address
        super().__init__(data, url, filename, metadata)
        if self.data is None and self.url is None:
            raise ValueError("an Image needs data, a filename or a url")
        self.format = (format or self._found_format()).lower().replace("jpg", "jpeg")

    def reload(self) -> None:
        if self.embed:
            super().reload()

    def _found_format(self) -> str:
        if isinstance(self.data, bytes):
            return next((name for start, name in _PICTURES if self.data.startswith(start)), "png")
        extension = os.path.splitext(self.filename or self.url or "")[1]  # noqa: PTH122  (an address, too)
        return extension.lstrip(".") or "png"

    def _repr_mimebundle_(self, **_options: object) -> dict[str, Any]:
        if self.embed:
            return {f"image/{self.format}": self.data}
        sizes = f"{_attribute('width', self.width)}{_attribute('height', self.height)}{_attribute('alt', self.alt)}"
        return {"text/html": f'<img src="{html.escape(str(self.url))}"{sizes}/>'}


class IFrame:
    """A page of another address in a frame."""

    def __init__(self, src: str, width: Any, height: Any, extras: Any = None, **params: Any) -> None:
        self.src, self.width, self.height = src, width, height
        self.extras, self.params = list(extras or ()), params

    __repr__ = DisplayObject.__repr__

    def _repr_html_(self) -> str:
        query = f"?{urlencode(self.params)}" if self.params else ""
        extras = " ".join(self.extras)
        return (
            f'<iframe width="{self.width}" height="{self.height}" src="{self.src}{query}" '
            f'frameborder="0" allowfullscreen {extras}></iframe>'
        )


class YouTubeVideo(IFrame):
    def __init__(self, id: str, width: int = 400, height: int = 300, **params: Any) -> None:
        self.id = id
        super().__init__(f"https://www.youtube.com/embed/{id}", width, height, **params)


class Video(DisplayObject):
    _binary = True
    _tag = "video"

    def __init__(
        self,
        data: Any = None,
        url: str | None = None,
        filename: Any = None,
        embed: bool = True,
        **options: Any,
    ) -> None:
        self.embed, self.options = embed, options
        super().__init__(data, url, filename)

    def reload(self) -> None:
        if self.filename is not None and self.embed:
            super().reload()

    def _repr_html_(self) -> str:
        source = html.escape(str(self.url or self.filename))
        if isinstance(self.data, bytes):
            guess = mimetypes.guess_type(self.filename or "")[0] or f"{self._tag}/{self._default}"
            source = f"data:{guess};base64,{base64.b64encode(self.data).decode()}"
        return f'<{self._tag} controls src="{source}"></{self._tag}>'

    _default = "mp4"


class Audio(Video):
    """Sound of a file or an address, or samples with their rate."""

    _tag, _default = "audio", "wav"

    def __init__(self, data: Any = None, filename: Any = None, url: str | None = None, rate: int | None = None,
                 **options: Any) -> None:  # fmt: skip
        if data is not None and rate is not None and not isinstance(data, (str, bytes)):
            data = _wave(data, rate)
        super().__init__(data, url, filename, **options)


class FileLink:
    """A file's name, as a link."""

    def __init__(self, path: Any, url_prefix: str = "", **_options: Any) -> None:
        self.path, self.url_prefix = os.fspath(path), url_prefix

    def __repr__(self) -> str:
        return str(os.path.abspath(self.path))  # noqa: PTH100

    def _repr_html_(self) -> str:
        return f"<a href='{html.escape(self.url_prefix + self.path)}' target='_blank'>{html.escape(self.path)}</a>"


class FileLinks(FileLink):
    """The files of a folder, as links."""

    def _repr_html_(self) -> str:
        paths = [
            os.path.join(folder, name)  # noqa: PTH118
            for folder, _, names in sorted(os.walk(self.path))
            for name in sorted(names)
        ]
        return "<br>\n".join(FileLink(path, self.url_prefix)._repr_html_() for path in paths)


class ProgressBar(DisplayObject):
    """Progress to a total, displayed when it is iterated over."""

    def __init__(self, total: int) -> None:
        self.total, self.html_width, self.text_width = total, "60ex", 60
        self._progress = 0
        self._handle = DisplayHandle()

    @property
    def progress(self) -> int:
        return self._progress

    @progress.setter
    def progress(self, value: int) -> None:
        self._progress = value
        self.update()

    def __repr__(self) -> str:
        filled = int(self._progress / max(self.total, 1) * self.text_width)
        return f"[{'=' * filled}{' ' * (self.text_width - filled)}] {self._progress}/{self.total}"

    def _repr_html_(self) -> str:
        return f"<progress style='width:{self.html_width}' max='{self.total}' value='{self._progress}'></progress>"

    def display(self) -> None:
        self._handle.display(self)

    def update(self) -> None:
        self._handle.update(self)

    def __iter__(self) -> ProgressBar:
        self._progress = -1
        self.display()
        return self

    def __next__(self) -> int:
        self.progress += 1
        if self.progress < self.total:
            return self.progress
        raise StopIteration


def _attribute(name: str, value: object) -> str:
    return "" if value is None else f' {name}="{html.escape(str(value))}"'


def _wave(samples: Any, rate: int) -> bytes:
    """16-bit sound of one or more channels, as loud as possible without clipping."""
    import io
    import wave
    from array import array

    channels = [list(each) for each in samples] if hasattr(samples[0], "__len__") else [list(samples)]
    loudest = max((abs(value) for channel in channels for value in channel), default=0) or 1
    mixed = array(
        "h", [int(value / loudest * 32767) for frame in zip(*channels, strict=True) for value in frame]
    )
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setnchannels(len(channels))
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(mixed.tobytes())
    return target.getvalue()


# -- modules --

_MIMES: Final = {
    "html": "text/html", "markdown": "text/markdown", "svg": "image/svg+xml", "png": "image/png",
    "jpeg": "image/jpeg", "webp": "image/webp", "latex": "text/latex", "json": "application/json",
    "javascript": "application/javascript", "pdf": "application/pdf", "pretty": "text/plain",
}  # fmt: skip

_FUNCTIONS: Final[dict[str, Any]] = {
    "display": display, "clear_output": clear_output, "update_display": update_display,
    "publish_display_data": publish_display_data, "DisplayHandle": DisplayHandle,
}  # fmt: skip
_CLASSES: Final[dict[str, Any]] = {
    cls.__name__: cls
    for cls in (DisplayObject, TextDisplayObject, Pretty, HTML, Markdown, Latex, Math, SVG, JSON, GeoJSON, Javascript,
                Code, Image, Video, ProgressBar)
}  # fmt: skip
_MEDIA: Final[dict[str, Any]] = {
    cls.__name__: cls for cls in (IFrame, YouTubeVideo, Audio, FileLink, FileLinks)
}
_SHOWS: Final[dict[str, Any]] = {f"display_{name}": _displays_as(mime) for name, mime in _MIMES.items()}
_CORE: Final = {**_FUNCTIONS, **_CLASSES, **_SHOWS}
_ALL: Final = {
    **_CORE, **_MEDIA,
    "set_matplotlib_formats": set_matplotlib_formats, "set_matplotlib_close": set_matplotlib_close,
}  # fmt: skip

MODULES: Final[Mapping[str, Mapping[str, Any]]] = {
    "IPython": {
        "get_ipython": get_ipython, "__version__": VERSION,
        "version_info": (*map(int, VERSION.split(".")), ""),
    },
    "IPython.display": _ALL,
    "IPython.core": {},
    "IPython.core.display": _CORE,
    "IPython.core.display_functions": _FUNCTIONS,
    "IPython.core.getipython": {"get_ipython": get_ipython},
    "IPython.lib": {},
    "IPython.lib.display": _MEDIA,
    "IPython.utils": {},
    "IPython.utils.capture": {
        "capture_output": capture_output, "CapturedIO": Capture, "RichOutput": RichOutput,
    },
}  # fmt: skip
"""The modules, and the names in each."""

for _name, _module in (
    *((name, "IPython.core.display") for name in _CLASSES),
    *((name, "IPython.lib.display") for name in _MEDIA),
):
    globals()[_name].__module__ = _module  # IPython's modules, which their names and pickle show


def fill(module: ModuleType) -> None:
    """Fills an empty module with its names."""
    names = MODULES[module.__name__]
    module.__dict__.update(names)
    module.__dict__["__all__"] = [name for name in names if name[:1] != "_"]
