"""Forms of the tabs: presets, own data and decoding strategies."""
