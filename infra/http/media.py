"""Chooses the media type or coding that a request accepts (RFC 9110, sections 12.4.2, 12.5.1 and 12.5.3)."""

from collections.abc import Sequence

from siltlog.infra.errors import problem


def chosen_media(accept: str, offered: Sequence[str]) -> str:
    """The offered type with the highest quality, of equals the first. Raises `not_acceptable` when none is taken."""
    ranges = _parsed(accept) or [("*/*", 1.0)]
    best, best_quality = "", 0.0
    for media in offered:
        quality = _quality(ranges, (media, media.partition("/")[0] + "/*", "*/*"))
        if quality > best_quality:
            best, best_quality = media, quality
    if not best:
        raise problem("not_acceptable", f"Accept: {accept[:200]} is not offered here; there are: {', '.join(offered)}")
    return best


def chosen_coding(accept_encoding: str, offered: Sequence[str]) -> str | None:
    """The offered content coding with the highest quality; None for the content as it is."""
    codings = _parsed(accept_encoding)
    best, best_quality = None, 0.0
    for coding in offered:
        quality = _quality(codings, (coding, "*"))
        if quality > best_quality:
            best, best_quality = coding, quality
    return best


def _quality(accepted: Sequence[tuple[str, float]], names: Sequence[str]) -> float:
    """The quality of the most specific of `names` that is listed; 0 when none is."""
    by_name = dict(accepted)
    return next((by_name[name] for name in names if name in by_name), 0.0)


def _parsed(header: str) -> list[tuple[str, float]]:
    """(name, quality) of each element; other parameters than `q` are passed over."""
    out = []
    for element in header.split(","):
        name, *parameters = (part.strip() for part in element.split(";"))
        if not name:
            continue
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "q":
                try:
                    quality = min(max(float(value), 0.0), 1.0)
                except ValueError:
                    quality = 0.0
        out.append((name.lower(), quality))
    return out
