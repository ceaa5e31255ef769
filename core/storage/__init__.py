"""How things lie on disk: written so that a crash does no harm, read so that a stranger's file does none."""
