from __future__ import annotations

import socket
from collections import deque
from dataclasses import dataclass

import pytest
from aiohttp import ClientResponseError, InvalidURL, RequestInfo
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from sync.alerts.incidents import Alert
from sync.alerts.webhook import MAX_REJECTIONS, MAX_ROUND_S, Webhook, _reason, check_url
from sync.common.errors import FleetError
from tests.helpers.webhook_server import WebhookServer
from tests.sync.alerts.test_alert_output import message


@dataclass
class ManualClock:
    """A manual clock in seconds."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


def webhook(url: str, clock: ManualClock, token: str = "") -> Webhook:
    return Webhook(url, token, chance=lambda: 0.5, clock=clock)


def messages(count: int) -> list[Alert]:
    return [message(number) for number in range(count)]


def subjects(server: WebhookServer) -> list[str]:
    return [alert["subject"].strip() for alert in server.received_alerts]


async def test_alerts_are_sent_in_order_with_the_token() -> None:
    server, queue = WebhookServer(), messages(3)
    async with server.listening():
        hook = webhook(server.url, ManualClock(), "secret-token")
        assert await hook.deliver(queue) == 3
        assert await hook.deliver(queue) == 0
    assert (queue, subjects(server)) == ([], ["jobs-0", "jobs-1", "jobs-2"])
    assert server.tokens == ["Bearer secret-token"] * 3
    assert "secret" not in repr(hook)
    assert server.url not in repr(hook)


@pytest.mark.parametrize("status", [500, 503, 429, 401, 404, 307, 0], ids=str)
async def test_failed_alert_is_repeated_after_a_pause(status: int) -> None:
    server, queue, clock = WebhookServer(deque([status, status])), messages(2), ManualClock()
    server.headers = {"Location": "/elsewhere"} if status == 307 else {}
    async with server.listening():
        hook = webhook(server.url, clock)
        assert await hook.deliver(queue) == 0
        assert len(queue) == 2
        assert await hook.deliver(queue) == 0
        clock.now += 1.1
        await hook.deliver(queue)
        assert subjects(server) == ["jobs-0", "jobs-0"]
        clock.now += 1.1
        await hook.deliver(queue)
        assert subjects(server) == ["jobs-0", "jobs-0"]
        clock.now += 1.0
        assert await hook.deliver(queue) == 2
    assert subjects(server)[2:] == ["jobs-0", "jobs-1"]


async def test_retry_after_is_honoured_within_limits() -> None:
    for requested, wait in (("120", 121.0), ("86400", 900.0)):
        server, queue, clock = WebhookServer(deque([503])), messages(1), ManualClock()
        server.headers = {"Retry-After": requested}
        async with server.listening():
            hook = webhook(server.url, clock)
            await hook.deliver(queue)
            assert hook.retry_at == clock.now + wait
            clock.now += wait
            assert await hook.deliver(queue) == 1


async def test_unreachable_webhook_is_retried() -> None:
    server, queue, clock = WebhookServer(), messages(1), ManualClock()
    async with server.listening():
        url = server.url
    hook = webhook(url, clock)
    for _ in range(12):
        assert await hook.deliver(queue) == 0
        assert hook.retry_at - clock.now <= 900.0
        clock.now = hook.retry_at
    async with server.listening():
        hook.url = server.url
        assert await hook.deliver(queue) == 1
    assert (hook.failures, subjects(server)) == (0, ["jobs-0"])


async def test_webhook_that_does_not_answer_is_retried() -> None:
    queue, clock = messages(1), ManualClock()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hook = webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/hook", clock)
        hook.timeout_s = 0.05
        assert await hook.deliver(queue) == 0
    assert (len(queue), hook.failures) == (1, 1)
    assert hook.retry_at > clock.now


async def test_rejected_alert_is_discarded() -> None:
    server, queue, clock = WebhookServer(deque([400] * MAX_REJECTIONS)), messages(2), ManualClock()
    async with server.listening():
        hook = webhook(server.url, clock)
        for _ in range(MAX_REJECTIONS):
            await hook.deliver(queue)
            clock.now = max(clock.now, hook.retry_at)
    assert (queue, subjects(server)) == ([], ["jobs-0"] * MAX_REJECTIONS + ["jobs-1"])


async def test_round_ends_in_time_and_on_stop() -> None:
    server, queue, clock = WebhookServer(), messages(5), ManualClock()

    def tick() -> bool:
        clock.now += MAX_ROUND_S / 2
        return False

    async with server.listening():
        hook = webhook(server.url, clock)
        assert await hook.deliver(queue, tick) == 2
        assert await hook.deliver(queue, lambda: True) == 0
        assert await hook.deliver(queue) == 3
    assert subjects(server) == [f"jobs-{number}" for number in range(5)]


def test_failures_do_not_contain_the_url() -> None:
    url = URL("https://hooks.example/secret")
    info = RequestInfo(url, "POST", CIMultiDictProxy(CIMultiDict()), url)
    refused = ClientResponseError(info, (), status=407, message="log in")
    assert _reason(refused) == "ClientResponseError: 407 log in"
    assert _reason(InvalidURL(url)) == "InvalidURL"
    assert _reason(TimeoutError("no answer")) == "TimeoutError: no answer"


async def test_unusable_proxy_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://proxy.example:1080")
    monkeypatch.delenv("no_proxy", raising=False)
    queue = messages(1)
    hook = webhook("https://hooks.example/x", ManualClock())
    assert await hook.deliver(queue) == 0
    assert hook.failures == 1


def test_allowed_urls() -> None:
    for url in ("https://hooks.example/T0/secret", "http://127.0.0.1:8080/x", "http://[::1]/x"):
        assert check_url(url) == url


def test_user_in_the_url_excludes_a_token() -> None:
    url = "https://user:secret@hooks.example/x"
    assert check_url(url) == url
    with pytest.raises(FleetError) as caught:
        check_url(url, "token")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["http://h.example/secret", "ftp://127.0.0.1/secret", "secret", "https://", "https://[secret"],
)
def test_refused_urls_are_reported_without_secrets(url: str) -> None:
    with pytest.raises(FleetError) as caught:
        check_url(url)
    assert "secret" not in str(caught.value)
