"""Two sets of rules to start from.

Both are advice, given before anything runs; what keeps code in is the jail, which needs neither.
"""

from __future__ import annotations

from cenote_security.rules.attributes import AttributeRule, DynamicAttributeRule, HiddenAttributeRule
from cenote_security.rules.functions import FunctionRule
from cenote_security.rules.imports import AllowedImportsRule, ImportRule
from cenote_security.rules.installs import InstallRule
from cenote_security.rules.reading.names import names
from cenote_security.rules.remedies import NO_NETWORK
from cenote_security.rules.rule import SecurityRule

_NETWORK_MODULES = names("ftplib http.server imaplib paramiko poplib smtplib socketserver telnetlib xmlrpc")
_NATIVE_MODULES = names("cffi ctypes")
_TERMINAL_MODULES = names("pexpect pty ptyprocess")
_SOCKET_FUNCTIONS = names(
    """
    asyncio.open_connection asyncio.start_server socket.create_connection socket.create_server
    socket.fromfd socket.socket socket.socketpair
    """
)
_PROCESS_FUNCTIONS = names(
    """
    os._exit os.abort os.execl os.execle os.execlp os.execv os.execve os.execvp os.execvpe os.fork
    os.forkpty
    """
)
_TRACING_FUNCTIONS = names(
    """
    sys._current_frames sys._getframe sys.addaudithook sys.monitoring.register_callback
    sys.monitoring.use_tool_id sys.setprofile sys.settrace threading.setprofile threading.settrace
    """
)
_HEAP_FUNCTIONS = names("gc.get_objects gc.get_referents gc.get_referrers")
_INTERPRETER_ATTRIBUTES = names(
    """
    __builtins__ __globals__ __subclasses__ ag_frame cr_frame f_back f_builtins f_globals gi_frame
    tb_frame
    """
)

ANALYSIS_MODULES = names(
    """
    IPython.display __future__ abc altair array arrow ast asyncio base64 bisect bokeh calendar catboost
    cmath collections concurrent.futures contextlib copy csv dataclasses datetime dateutil decimal
    difflib duckdb enum folium fractions functools geopandas graphlib hashlib heapq html imblearn io
    itertools jax json keras lightgbm locale logging math matplotlib mpl_toolkits networkx nltk numba
    numbers numpy openpyxl operator orjson pandas patsy plotly polars pprint prophet pyarrow pydantic
    pytz random re scipy seaborn secrets shapely sklearn spacy statistics statsmodels string struct
    sympy tabulate tensorflow textwrap time timeit torch tqdm traceback transformers types typing
    typing_extensions unicodedata urllib.parse uuid warnings weakref xarray xgboost yaml zoneinfo
    """
)
"""What `strict_rules` lets code import: computing, tables, statistics, plots; nothing that reaches the system."""


_STRICT_BUILTINS = names(
    "__import__ breakpoint compile eval exec exit get_ipython globals help input locals open quit vars"
)
_CODE_RUNNERS = names(
    """
    dataclasses.make_dataclass numexpr.evaluate numpy.testing.rundocs numpy.testing.runstring
    sympy.lambdify sympy.parse_expr sympy.sympify typing.ForwardRef typing.get_type_hints types.CodeType
    types.FunctionType types.new_class
    """
)
_UNPICKLERS = names(
    "joblib.load numpy.load pandas.read_pickle torch.load yaml.full_load yaml.load yaml.unsafe_load"
)
_FILE_FUNCTIONS = names(
    """
    asyncio.create_subprocess_exec asyncio.create_subprocess_shell io.FileIO io.open io.open_code
    logging.FileHandler logging.basicConfig logging.config.dictConfig logging.config.fileConfig
    numpy.DataSource numpy.fromfile numpy.genfromtxt numpy.loadtxt numpy.memmap numpy.fromregex
    linecache.getlines
    """
)
_REFLECTION_ATTRIBUTES = names(
    """
    ag_await ag_code co_code co_consts cr_await cr_code f_code f_locals f_trace gi_code gi_yieldfrom mro
    tb_next
    """
)
_USUAL_DUNDERS = names(
    """
    __abs__ __add__ __aenter__ __aexit__ __aiter__ __anext__ __all__ __and__ __annotations__ __array__
    __array_interface__ __bool__ __bytes__ __call__ __cause__ __class__ __contains__ __context__
    __dataclass_fields__ __delitem__ __divmod__ __doc__ __enter__ __eq__ __exit__ __file__ __float__
    __floordiv__ __format__ __ge__ __getitem__ __gt__ __hash__ __iadd__ __index__ __init__ __int__
    __iter__ __le__ __len__ __lt__ __main__ __matmul__ __members__ __missing__ __mod__ __module__
    __mul__ __name__ __ne__ __neg__ __next__ __notes__ __or__ __post_init__ __pow__ __qualname__
    __radd__ __repr__ __reversed__ __rmul__ __round__ __rsub__ __rtruediv__ __set_name__ __setitem__
    __slots__ __str__ __sub__ __suppress_context__ __truediv__ __version__ __xor__
    """
)


def default_rules(*, installs: bool = False) -> list[SecurityRule]:
    """Rules for any jail: what cannot work in one, and what only an escape would need.

    Ordinary analysis code, files and subprocesses included, passes; the model gets better advice than the kernel's
    "operation not permitted". installs: whether packages may be installed, for a jail that reaches an index.
    """
    return [
        ImportRule(_NETWORK_MODULES, dynamic=True, remedy=NO_NETWORK),
        ImportRule(_NATIVE_MODULES, dynamic=True),
        ImportRule(_TERMINAL_MODULES, dynamic=True, remedy="there is no terminal here: use subprocess.run"),
        FunctionRule(_SOCKET_FUNCTIONS, remedy=NO_NETWORK),
        FunctionRule(_PROCESS_FUNCTIONS, remedy="use concurrent.futures, or subprocess.run for a program"),
        FunctionRule(_TRACING_FUNCTIONS, remedy="print what you want to see"),
        FunctionRule(_HEAP_FUNCTIONS, remedy="use the variables by their names"),
        AttributeRule(_INTERPRETER_ATTRIBUTES),
        *(() if installs else (InstallRule(),)),
    ]


def strict_rules() -> list[SecurityRule]:
    """Rules for code that computes on what it was given: no file, no process, no reflection, listed modules only.

    Stops some ordinary code too, such as anything that calls `open`.
    """
    return [
        *default_rules(),
        AllowedImportsRule(ANALYSIS_MODULES),
        FunctionRule(_STRICT_BUILTINS),
        FunctionRule(_CODE_RUNNERS, remedy="write the code in the cell itself"),
        FunctionRule(_UNPICKLERS, remedy="use json, parquet or csv"),
        FunctionRule(_FILE_FUNCTIONS),
        AttributeRule(_REFLECTION_ATTRIBUTES),
        HiddenAttributeRule(_USUAL_DUNDERS),
        DynamicAttributeRule(),
    ]
