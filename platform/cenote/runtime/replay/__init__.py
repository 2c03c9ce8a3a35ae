"""A runtime as patches, builds, slices and audits run code in it again."""
