"""The Markdown files in a folder of a server with WebDAV, so that people edit them in the notes app that they have."""
