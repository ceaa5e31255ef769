"""The web server around the page: visitors, limits, caching, downloads, health and logs."""
