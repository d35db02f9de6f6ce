"""The pages. Every module or package here has a `PAGE`; see `gateway.web.dashboard.page`."""
