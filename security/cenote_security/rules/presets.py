"""Two sets of rules to start from.

Both are advice, given before anything runs; what keeps code in is the jail, which needs neither.
"""

from __future__ import annotations

from cenote_security.rules.builtin_rules import (
    NO_NETWORK,
    AllowedImportsRule,
    AttributeRule,
    DynamicAttributeRule,
    FunctionRule,
    HiddenAttributeRule,
    ImportRule,
    InstallRule,
    MagicRule,
)
from cenote_security.rules.reading.known_names import names
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
    IPython.display __future__ abc altair array arrow ast asyncio base64 binascii bisect bokeh calendar
    catboost cmath collections colorsys concurrent.futures contextlib copy csv dataclasses datetime
    dateutil decimal difflib duckdb enum folium fractions functools geopandas graphlib hashlib heapq
    hmac html imblearn io itertools jax json keras lightgbm locale logging math matplotlib mpl_toolkits
    networkx nltk numba numbers numpy openpyxl operator orjson pandas patsy plotly polars pprint prophet
    pyarrow pydantic pytz random re scipy seaborn secrets shapely sklearn spacy statistics statsmodels
    string struct sympy tabulate tensorflow textwrap time timeit tomllib torch tqdm traceback
    transformers types typing typing_extensions unicodedata urllib.parse uuid warnings weakref xarray
    xgboost yaml zlib zoneinfo
    """
)
"""What `strict_rules` lets code import: computing, tables, statistics, plots; nothing that reaches the system."""


_STRICT_BUILTINS = names(
    """
    __import__ breakpoint compile copyright credits eval exec exit get_ipython globals help input license
    locals open quit vars
    """
)
"""`copyright`, `credits` and `license` are objects of `site` that print the files they are given the names of."""

_LOADING_MODULES = names(
    """
    IPython.core IPython.extensions IPython.lib IPython.terminal IPython.utils altair.utils.execeval
    asyncio.base_events asyncio.base_subprocess asyncio.selector_events asyncio.subprocess
    asyncio.unix_events bokeh.application bokeh.command bokeh.server bokeh.util.browser
    bokeh.util.compiler concurrent.futures.process dateutil.zoneinfo.rebuild enum.bltns jax.ffi
    json.tool keras.saving locale.encodings logging.config logging.handlers
    matplotlib.backends.backend_pgf matplotlib.backends.backend_registry matplotlib.backends.registry
    matplotlib.dviread matplotlib.sphinxext matplotlib.testing matplotlib.texmanager
    networkx.drawing.nx_agraph networkx.drawing.nx_pydot networkx.nx_agraph networkx.nx_pydot nltk.app
    nltk.data nltk.downloader nltk.internals numba.pycc numba.testing numpy.compat.py3k numpy.ctypeslib
    numpy.distutils numpy.f2py numpy.lib.format numpy.lib.npyio numpy.testing.extbuild
    pandas.compat.pickle_compat pandas.core.computation pandas.io.clipboard pandas.io.clipboards
    pandas.io.common pandas.io.pickle pandas.io.pytables plotly.io.kaleido plotly.io.orca
    plotly.optional_imports polars.plugins pyarrow.cffi pyarrow.flight pyarrow.fs pyarrow.jvm
    pydantic.deprecated pydantic.plugin pydantic.utils pydantic.v1.utils sklearn.externals spacy.cli
    statsmodels.iolib.smpickle sympy.external sympy.interactive sympy.parsing.autolev
    sympy.parsing.sympy_parser sympy.testing sympy.utilities.autowrap sympy.utilities.runtests
    tensorflow.io.gfile tensorflow.python tensorflow.raw_ops timeit.gc torch.distributed torch.hub
    torch.multiprocessing torch.package torch.serialization torch.utils.bottleneck
    torch.utils.collect_env torch.utils.cpp_extension tqdm.contrib.discord tqdm.contrib.slack
    tqdm.contrib.telegram transformers.commands transformers.dynamic_module_utils urllib.error
    urllib.request urllib.response urllib.robotparser uuid.platform xgboost.tracker yaml.constructor
    """
)
"""What is within listed modules, and opens files, loads native code or pickles, runs text or starts programs."""

_POOLS_OF_PROCESSES = names("concurrent.futures.ProcessPoolExecutor to_clipboard")
"""`to_clipboard` runs a program that has the clipboard."""

_CODE_RUNNERS = names(
    """
    IPython.embed IPython.get_ipython IPython.start_ipython IPython.start_kernel ast.main base64.main
    base64.test calendar.main dataclasses.make_dataclass numexpr.evaluate numpy.compat.npy_load_module
    numpy.lookfor numpy.test numpy.testing.measure numpy.testing.rundocs numpy.testing.runstring
    pandas.test patsy.EvalEnvironment plotly.tools.get_module pydantic.ImportString pydantic.PyObject
    random.main scipy.LowLevelCallable spacy.util.import_file spacy.util.run_command sympy.doctest
    sympy.init_session sympy.lambdify sympy.parse_expr sympy.preview sympy.sympify sympy.test
    sympy.utilities.lambdify.lambdify timeit.main torch.jit.CompilationUnit types.CodeType
    types.FunctionType types.LambdaType types.new_class typing.ForwardRef typing.evaluate_forward_ref
    typing.get_type_hints typing_extensions.evaluate_forward_ref typing_extensions.get_type_hints
    uuid.main
    """
)
_UNREADABLE_TEXT = "the text that it would run cannot be told from the code"
_UNPICKLERS = names(
    """
    joblib.load keras.config.enable_unsafe_deserialization keras.load_model keras.models.load_model
    numpy.load pandas.HDFStore pandas.read_hdf pandas.read_pickle statsmodels.api.load
    statsmodels.api.load_pickle tensorflow.keras.models.load_model tensorflow.saved_model.load
    torch.jit.load torch.load yaml.CFullLoader yaml.CLoader yaml.CUnsafeLoader yaml.FullLoader
    yaml.Loader yaml.UnsafeLoader yaml.full_load yaml.full_load_all yaml.unsafe_load yaml.unsafe_load_all
    """
)
_NATIVE_FUNCTIONS = names(
    """
    duckdb.install_extension duckdb.load_extension install_extension load_extension numba.carray
    numba.farray polars.Expr.deserialize polars.LazyFrame.deserialize pyarrow.foreign_buffer
    register_plugin_function tensorflow.load_library tensorflow.load_op_library
    torch.classes.load_library torch.ops.load_library
    """
)
_FILE_FUNCTIONS = names(
    """
    IPython.display.Audio(filename) IPython.display.Code(filename) IPython.display.FileLink
    IPython.display.FileLinks IPython.display.GeoJSON(filename) IPython.display.HTML(filename)
    IPython.display.Image(filename) IPython.display.JSON(filename) IPython.display.Javascript(filename)
    IPython.display.Latex(filename) IPython.display.Markdown(filename) IPython.display.Math(filename)
    IPython.display.Pretty(filename) IPython.display.SVG(filename) IPython.display.Video(filename)
    contextlib.chdir dateutil.tz.tzfile from_custom_template io.FileIO io.open io.open_code
    keras.utils.get_file linecache.getlines logging.FileHandler logging.basicConfig(filename)
    matplotlib.animation.FFMpegWriter matplotlib.animation.ImageMagickWriter
    matplotlib.cbook.get_sample_data matplotlib.rc_file matplotlib.rc_params_from_file
    networkx.utils.decorators.open_file networkx.utils.open_file nltk.download numpy.DataSource
    numpy.fromfile numpy.fromregex numpy.genfromtxt numpy.loadtxt numpy.memmap numpy.rec.fromfile
    numpy.testing.jiffies numpy.testing.memusage numpy.testing.tempdir numpy.testing.temppath
    pandas.read_clipboard pyarrow.OSFile pyarrow.create_memory_map pyarrow.input_stream
    pyarrow.memory_map pyarrow.output_stream pytz.open_resource tensorflow.io.read_file
    tensorflow.io.write_file tensorflow.keras.utils.get_file torch.from_file traceback.FrameSummary
    warnings.formatwarning warnings.warn_explicit
    """
)
_EVENT_LOOP_FUNCTIONS = names(
    """
    asyncio.create_subprocess_exec asyncio.create_subprocess_shell asyncio.open_unix_connection
    asyncio.start_unix_server connect_accepted_socket connect_read_pipe connect_write_pipe
    create_connection create_datagram_endpoint create_server create_unix_connection create_unix_server
    subprocess_exec subprocess_shell
    """
)
_REMOTE_CODE = names("from_pretrained(trust_remote_code) transformers.pipeline(trust_remote_code)")
_REFLECTION_ATTRIBUTES = names(
    """
    _module ag_await ag_code co_code co_consts cr_await cr_code ctypes f_code f_locals f_trace gi_code
    gi_yieldfrom mro tb_next
    """
)
"""`_module` leads from `warnings.catch_warnings()` to a module, `ctypes` from an array to its address."""
_USUAL_DUNDERS = names(
    """
    __abs__ __add__ __aenter__ __aexit__ __aiter__ __anext__ __all__ __and__ __annotations__ __array__
    __array_interface__ __bool__ __bytes__ __call__ __cause__ __ceil__ __class__ __complex__
    __contains__ __context__ __copy__ __dataclass_fields__ __deepcopy__ __delitem__ __divmod__ __doc__
    __enter__ __eq__ __exit__ __file__ __float__ __floor__ __floordiv__ __format__ __ge__ __getitem__
    __gt__ __hash__ __iadd__ __iand__ __ifloordiv__ __imatmul__ __imod__ __imul__ __index__ __init__
    __init_subclass__ __int__ __invert__ __ior__ __ipow__ __isub__ __iter__ __itruediv__ __ixor__
    __le__ __len__ __length_hint__ __lshift__ __lt__ __main__ __matmul__ __members__ __missing__ __mod__
    __module__ __mul__ __name__ __ne__ __neg__ __new__ __next__ __notes__ __or__ __pos__ __post_init__
    __pow__ __qualname__ __radd__ __rand__ __rdivmod__ __repr__ __reversed__ __rfloordiv__ __rlshift__
    __rmatmul__ __rmod__ __rmul__ __ror__ __round__ __rpow__ __rrshift__ __rshift__ __rsub__
    __rtruediv__ __rxor__ __set_name__ __setattr__ __setitem__ __slots__ __str__ __sub__
    __suppress_context__ __traceback__ __truediv__ __trunc__ __version__ __xor__
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
    """Rules for code that computes on what it was given: no process, no reflection, listed modules only, and no file
    but those that its libraries read and write.

    Stops some ordinary code too, such as anything that calls `open`, shell commands (`!ls`) and magics that do more
    than compute (`%cd`, `%%writefile`).

    The readers and writers of tables, arrays, plots and queries are part of computing and pass: `pandas.read_csv`,
    its kin in polars, pyarrow, duckdb, scipy and xarray, `DataFrame.to_csv`, `numpy.save`, `savefig`. They open
    whatever path the jail holds, its own `/etc/passwd` included, and a URL where the policy allows a network.
    Where code must not read a file, the jail must not hold it. Readers that load pickles or run what they read are
    refused.
    """
    return [
        *default_rules(),
        MagicRule(),
        AllowedImportsRule(ANALYSIS_MODULES),
        ImportRule(_LOADING_MODULES, dynamic=True),
        FunctionRule(_STRICT_BUILTINS),
        FunctionRule(_CODE_RUNNERS, remedy="write the code in the cell itself"),
        FunctionRule({"timeit.Timer(text)"}, _UNREADABLE_TEXT, remedy="time a function: lambda: f(x)"),
        FunctionRule({"pandas.eval(text)"}, _UNREADABLE_TEXT, remedy="write the expression itself"),
        FunctionRule(_UNPICKLERS, remedy="use json, parquet or csv"),
        FunctionRule(_NATIVE_FUNCTIONS),
        FunctionRule(_FILE_FUNCTIONS),
        FunctionRule(_EVENT_LOOP_FUNCTIONS),
        FunctionRule(_POOLS_OF_PROCESSES, remedy="use ThreadPoolExecutor"),
        FunctionRule(_REMOTE_CODE),
        AttributeRule(_REFLECTION_ATTRIBUTES),
        HiddenAttributeRule(_USUAL_DUNDERS),
        DynamicAttributeRule(),
    ]
