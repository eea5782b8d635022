"""The page that tells what the log says, made of its catalogue."""

from siltlog.infra.log_events import EVENTS, LIBRARY, UNCAUGHT, LogEvent

_HEAD = """# Logs

A server writes its log to stderr: a line for each thing that happened, none for what goes well all the time. Two
forms:

- `SILT_LOG_FORMAT=console`, which a terminal is read in, and which is the default;
- `SILT_LOG_FORMAT=json`: one JSON object a line, for what collects logs.

`SILT_LOG_LEVEL` is the least important line that is written: `debug`, `info` (the default), `warning`, `error`.

## A line

```json
{"time":"2026-03-01T09:30:00.125Z","level":"info","event":"request","message":"request","request_id":"b3f0c2-1f",
 "principal":"key:loader","operation":"publish","topic":"orders","node":"node-1","status":404,"seconds":0.0012,
 "path":"/v1/topics/orders/records","method":"POST","bytes_in":120,"bytes_out":231,"address":"10.0.3.7",
 "error_code":"unknown_topic"}
```

| field | what it is |
|---|---|
| `time` | when, in UTC |
| `level` | `debug`, `info`, `warning`, `error`, `critical` |
| `event` | the name of what happened, from the table below: it never changes, so alert on it |
| `action` | what somebody on call does about it; only with `warning` and worse, and where there is something to do |
| `message` | the same in words, which may change |
| `request_id` | of the request on whose account the line was written |
| `principal` | who sent it, where callers say who they are |
| `operation` | the id of the operation in the OpenAPI document |
| `topic` | what it is about |
| `node` | `SILT_NODE_ID` of the server that speaks |
| `trace_id` | of the [trace](tracing.md) that it belongs to |

Fields that do not apply are left out; each event has its own besides. What is secret is taken out of every line: API
keys, tokens, passwords in addresses, private keys, the values of secret settings. A query of a URL is never written.

## Request ids

A request has the id that its header `X-Request-Id` (or `Silt-Request-Id`, which goes before it) gives: 128 characters
at most, of letters, digits and `. _ : / + = @ ~ -`. Any other gets one from the server. Every reply says it in
`Silt-Request-Id`, problem documents in `request_id`, and a node that passes a request on passes its id on. Publishes
with an id of their own take the fast path as well.

## The access log

`SILT_ACCESS_LOG` says which requests have a line (`event` is `request`):

| value | lines |
|---|---|
| `off` | none |
| `errors` | what was answered with 400 or more; the default |
| `slow` | those, and what took over a second without the `wait_ms` that it asked for itself; streams are never slow |
| `all` | each request, publishes of the fast path included |

Lines of `warning` are those of 500 and more, the others are `info`: with `SILT_LOG_LEVEL=warning` a client's own
errors have none. `seconds` runs from the request's head to the last byte of the reply; `bytes_in` and `bytes_out` are
of bodies as they were sent (`bytes_in` is missing where the body came in pieces); `address` is the client's, behind
`SILT_TRUSTED_PROXIES` the one that they tell, and `local` for the socket in the data directory. `status` 0: the
client had gone.

In `errors` and `slow` at most 20 lines a second are written; what is above is counted, and told once the second is
over (`requests_left_out` with its `count`): a client that storms does not fill the disk. `all` leaves nothing out: a
line as JSON takes about 40 µs of processor time (measured at the server, which takes 70 µs for a publish of 100 bytes
by the fast path, and 125 µs by the other), and some 350 bytes where the log goes. The other values cost a publish
nothing that can be measured.

## Events

What is alerted on is best a [metric](metrics.md); a log says what a number cannot. Every line of the server has one
of these names.

| event | message | action |
|---|---|---|
"""


def page() -> str:
    """Writes docs/logs.md."""
    others = (
        LogEvent(LIBRARY, "what a library logs, in `said`, with its `logger`"),
        LogEvent(UNCAUGHT, "an error that nobody caught", "report it as a defect of Siltlog, with this line"),
    )
    return _HEAD + "".join(_row(event) for event in (*EVENTS, *others))


def _row(event: LogEvent) -> str:
    return f"| `{event.name}` | {event.sentence} | {event.action} |\n"


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 (what it is for)
