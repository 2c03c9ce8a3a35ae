"""Unauthenticated clients: their messages are not parsed, and their connections are limited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from queue import SimpleQueue

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from tests.support.serving.fixtures import World
from tests.waiting import PATIENCE, until

from cenote_proto.v1 import reference_pb2
from cenote_worker.serving.auth_interceptor import MAX_STRANGERS, AuthInterceptor, Metadata

SERVING = health_pb2.HealthCheckResponse.SERVING
GET = "/cenote_proto.v1.ReferenceService/GetReference"
GOOD = (("authorization", "Bearer good"),)
NONSENSE = b"\xff" * (3 << 20)
"""Not a message of any kind."""


@contextmanager
def channel(world: World) -> Iterator[grpc.Channel]:
    with closing(grpc.insecure_channel(world.address)) as opened:
        yield opened


def code(call: grpc.Call) -> grpc.StatusCode:
    """The stream's status code, once it has ended."""
    with pytest.raises(grpc.RpcError) as refused:
        call.result(timeout=PATIENCE)
    return refused.value.code()


def test_what_a_stranger_sends_is_not_parsed(world: World) -> None:
    """A client with a token gets a parse error; one without gets an authentication error."""
    with channel(world) as opened:
        get = opened.unary_unary(GET)
        assert grpc.StatusCode.FAILED_PRECONDITION == code(get.future(NONSENSE))
        assert grpc.StatusCode.UNKNOWN == code(get.future(NONSENSE, metadata=GOOD))
        check = opened.unary_unary("/grpc.health.v1.Health/Check")
        assert grpc.StatusCode.INVALID_ARGUMENT == code(check.future(NONSENSE))


def test_a_stranger_who_sends_nothing_is_not_waited_for(world: World) -> None:
    """A unary call whose request never arrives ends all the same."""
    words = SimpleQueue[None]()
    with channel(world) as opened:
        get = opened.stream_unary(GET)
        try:
            assert grpc.StatusCode.FAILED_PRECONDITION == code(get.future(iter(words.get, None)))
        finally:
            words.put(None)


def test_strangers_have_bounded_room(world: World) -> None:
    """A client that watches the server's health needs no token, and may stay; at the limit others are refused until
    one leaves. Single health checks, and clients with a token, are not affected.
    """
    with channel(world) as opened:
        health = health_pb2_grpc.HealthStub(opened)
        watching = [health.Watch(health_pb2.HealthCheckRequest()) for _ in range(MAX_STRANGERS)]
        for each in watching:
            next(each)
        with pytest.raises(grpc.RpcError) as refused:
            next(health.Watch(health_pb2.HealthCheckRequest()))
        assert grpc.StatusCode.UNAVAILABLE == refused.value.code()
        assert SERVING == health.Check(health_pb2.HealthCheckRequest()).status
        with channel(world) as others:
            get = others.unary_unary(GET)
            asked = reference_pb2.ReferenceId(id="ref_1").SerializeToString()
            assert grpc.StatusCode.NOT_FOUND == code(get.future(asked, metadata=GOOD))
        watching.pop().cancel()
        until(lambda: watches(health))


def watches(health: health_pb2_grpc.HealthStub) -> bool:
    try:
        return bool(SERVING == next(health.Watch(health_pb2.HealthCheckRequest())).status)
    except grpc.RpcError:
        return False


async def test_a_stranger_is_to_come_to_the_point() -> None:
    """A client that opens a call, and does not send it, is disconnected."""

    async def nobody(_metadata: Metadata) -> None:
        raise AssertionError("no token is needed")

    server = grpc.aio.server(interceptors=(AuthInterceptor(nobody, hurry=0.05),))
    health_pb2_grpc.add_HealthServicer_to_server(health_aio.HealthServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as opened:
        call = opened.stream_unary("/grpc.health.v1.Health/Check")()
        assert grpc.StatusCode.UNAVAILABLE == await call.code()
    await server.stop(None)
