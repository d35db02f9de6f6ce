"""Files that people write, read so that every error says where: file, line, column, key, and what was expected."""
