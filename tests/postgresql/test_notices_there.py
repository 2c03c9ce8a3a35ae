"""The same records on a server; the tests are imported."""

from tests.gateway.test_notices import (
    test_notices_are_put_on_record,
    test_what_cannot_be_recorded_stays,
)
