"""The gateway's own web server: login, health, and the pages that channels bring."""
