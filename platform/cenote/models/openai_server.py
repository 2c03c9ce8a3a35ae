"""A model behind a server of OpenAI's chat completions: OpenAI, vLLM, llama.cpp, Ollama, a gateway."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from cenote.models.base import ModelLimits, closing, pages, read_limits, released
from cenote.models.completion import WEB_PAGE, Completion, read_answer, read_error, read_page, wire_messages
from cenote.models.errors import (
    Credentials,
    ModelResponseError,
    ModelUnavailableError,
    missing_key,
    read_refusal,
)
from cenote.models.messages import Message, ReasoningDelta
from cenote.models.remote import RemoteModel, Waits, check_parameters, one_address, shown_address
from cenote.models.retry import RetryPolicy, retry_after
from cenote_security.errors import UsageError
from cenote_security.policy import check_seconds

if TYPE_CHECKING:
    import ssl

    import httpx

OPENAI_URL = "https://api.openai.com/v1"

LIMITS_TIMEOUT = 5.0
"""Seconds for a page that says what a model's limits are. They are worth no more."""

MAX_LIMITS_PAGE = 8 * 2**20
"""Bytes of such a page; OpenRouter's list of models has half a MiB."""

_SETTINGS = (
    "api_key",
    "api_base",
    "base_url",
    "connect_timeout",
    "idle_timeout",
    "timeout",
    "retry",
    "headers",
    "extra_headers",
    "default_headers",
    "organization",
    "project",
    "extra_body",
    "trust_env",
)
_PATH = "/chat/completions"
_OWN_PARAMETERS = frozenset({"model", "messages", "stream", "stream_options", "n", "max_retries"})


class OpenAIServerModel(RemoteModel):
    """Streams chat completions over HTTP.

    api_key: None sends no key, except to OpenAI itself, which gets `OPENAI_API_KEY` when that is set.
    base_url, or api_base: up to and without `/chat/completions`. None is what OPENAI_BASE_URL (or OPENAI_API_BASE)
        says, and else OpenAI.
    connect_timeout, idle_timeout: seconds to connect, and for each further piece of an answer.
    timeout, extra_headers, default_headers: what OpenAI's own client calls `idle_timeout` and `headers`.
    organization, project: sent in the headers that OpenAI has for them.
    retry: when to ask again while nothing of an answer has arrived.
    headers: sent along; treated as secret, as the key is.
    trust_env: whether proxies and certificates named in the environment are used.
    parameters: sent along in the request, such as `temperature=0.2`, `max_tokens=2000`. extra_body: further ones,
        which no other server knows.

    Raises UsageError for a keyword that is neither a setting nor a known request parameter.
    """

    def __init__(
        self,
        model_id: str,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        connect_timeout: float = 10.0,
        idle_timeout: float = 120.0,
        retry: RetryPolicy | None = None,
        headers: Mapping[str, str] | None = None,
        trust_env: bool = True,
        waits: Waits | None = None,
        timeout: float | None = None,
        extra_headers: Mapping[str, str] | None = None,
        default_headers: Mapping[str, str] | None = None,
        organization: str | None = None,
        project: str | None = None,
        extra_body: Mapping[str, object] | None = None,
        api_base: str | None = None,
        **parameters: object,
    ) -> None:
        check_seconds(timeout, "timeout")
        named = {name: value for name, value in parameters.items() if name not in _OWN_PARAMETERS}
        check_parameters(named, _SETTINGS)
        parameters |= extra_body or {}
        if own := _OWN_PARAMETERS & parameters.keys():
            raise UsageError(
                f"these request parameters are set by Cenote itself: {', '.join(sorted(own))}; "
                f"retries are set by retry=RetryPolicy(attempts=...)"
            )
        address = one_address(base_url=base_url, api_base=api_base)
        if api_key is None and address is None:
            api_key = os.environ.get("OPENAI_API_KEY")
        sent = {**(headers or {}), **(default_headers or {}), **(extra_headers or {})}
        sent |= {
            name: value
            for name, value in (("openai-organization", organization), ("openai-project", project))
            if value is not None
        }
        super().__init__(
            model_id,
            Credentials(api_key, sent),
            retry,
            waits,
            connect_timeout=connect_timeout,
            idle_timeout=timeout or idle_timeout,
        )
        self._base_url = _clean_url(address or _usual_address())
        self._address = shown_address(self._base_url)
        self._parameters = parameters
        self._trust_env = trust_env
        self._limits: ModelLimits | None = None
        self._tls: ssl.SSLContext | None = (
            None  # made at the first request: loading the certificates takes time
        )

    @property
    def base_url(self) -> str:
        """Where requests go, without a user name and password that the URL may hold."""
        return self._address

    def __repr__(self) -> str:
        return f"OpenAIServerModel(model_id={self.model_id!r}, base_url={self.base_url!r})"

    async def _exchange(
        self, messages: Sequence[Message], completion: Completion
    ) -> AsyncGenerator[str | ReasoningDelta, None]:
        import httpx  # slow to import

        if self._base_url == OPENAI_URL and not self._has_key():
            raise missing_key(
                self.model_id, "set OPENAI_API_KEY in the environment, or give `api_key=` or `base_url=`"
            )
        try:
            # A client of its own for each request: a client is bound to one event loop, a model is not.
            async with released(self._client()) as client, released(self._post(client, messages)) as response:
                await self._check(response)
                completion.progress()
                async with closing(read_answer(response, completion)) as deltas:
                    async for delta in deltas:
                        yield delta
        except httpx.RequestError as error:
            # `from None`: the original carries the request, and with it the key.
            raise self._unavailable(error) from None

    async def limits(self) -> ModelLimits:
        """What the server says, asked once: `/models`, `/props` of llama.cpp, pages of LM Studio and Ollama.

        OpenAI itself is not asked: it does not say.
        """
        if self._limits is None:
            known = ModelLimits()
            for page in () if self._base_url == OPENAI_URL else pages(self._base_url):
                found = read_limits(await self._page(page), self.model_id)
                known = ModelLimits(
                    known.context_window or found.context_window, known.max_output or found.max_output
                )
                if known.context_window is not None:
                    break
            self._limits = known
        return self._limits

    async def _page(self, url: str) -> object:
        """A page that a server may have; None where it has none, or does not answer soon."""
        import asyncio

        import httpx

        try:
            async with (
                asyncio.timeout(LIMITS_TIMEOUT),
                released(self._client()) as client,
                released(client.stream("GET", url, headers=self._headers())) as response,
            ):
                if response.status_code != 200:
                    return None
                return json.loads(await read_page(response, MAX_LIMITS_PAGE))
        except (httpx.HTTPError, TimeoutError, ValueError, RecursionError):
            return None

    def _has_key(self) -> bool:
        named = {name.lower() for name in self._credentials.extra}
        return bool(self._credentials.api_key or "authorization" in named)

    def _client(self) -> httpx.AsyncClient:
        import httpx

        if self._tls is None:
            self._tls = httpx.create_ssl_context(trust_env=self._trust_env)
        timeout = httpx.Timeout(self._idle_timeout, connect=self._connect_timeout)
        return httpx.AsyncClient(timeout=timeout, verify=self._tls, trust_env=self._trust_env)

    def _post(
        self, client: httpx.AsyncClient, messages: Sequence[Message]
    ) -> AbstractAsyncContextManager[httpx.Response]:
        body: dict[str, object] = {
            "model": self.model_id,
            "messages": wire_messages(messages),
            "stream": True,
        }
        if self._asks_for_usage:
            body["stream_options"] = {"include_usage": True}
        content = json.dumps(body | self._parameters).encode()
        return client.stream("POST", f"{self._base_url}{_PATH}", content=content, headers=self._headers())

    def _headers(self) -> dict[str, str]:
        # Compressed events would wait inside the compressor of some servers.
        headers = {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "cenote"}
        if self._credentials.api_key:
            headers["authorization"] = f"Bearer {self._credentials.api_key}"
        return headers | {name.lower(): str(value) for name, value in self._credentials.extra.items()}

    async def _check(self, response: httpx.Response) -> None:
        """Raises the error that a response other than an answer amounts to."""
        if response.status_code != 200:
            wait = retry_after(response.headers, time.time())
            raise read_refusal(response.status_code, await read_error(response), wait).error(self.redact)
        if "text/html" in response.headers.get("content-type", ""):
            raise ModelResponseError(WEB_PAGE)

    def _unavailable(self, error: httpx.RequestError) -> ModelUnavailableError:
        import httpx

        if isinstance(error, httpx.TimeoutException):
            return self._too_late(error)
        return ModelUnavailableError(self.redact(str(error) or type(error).__name__))


def _usual_address() -> str:
    """Where OpenAI's own clients go when they are given no address."""
    named = (os.environ.get(name, "").strip() for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE"))
    return next(filter(None, named), OPENAI_URL)


def _clean_url(base_url: str) -> str:
    url = base_url.strip().rstrip("/").removesuffix(_PATH)
    if not url.startswith(("http://", "https://")):
        raise UsageError("base_url starts with http:// or https://, e.g. http://localhost:8000/v1")
    return url
