"""The bridge, beside a bare pipe, a bare disk, and the peer."""
