"""Programs that compute one value again: the part of a history that it depends on."""
