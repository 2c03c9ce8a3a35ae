"""What is wrong with the arguments of a request, for the client that sent them."""

from __future__ import annotations

from pydantic import ValidationError

from cenote_security.errors import UsageError


def misfit(what: str, error: ValidationError) -> UsageError:
    """All that is wrong, each by its name. what: subject and verb of the sentence."""
    wrong = [f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in error.errors()]
    return UsageError(f"{what} not fit: {'; '.join(wrong)}")
