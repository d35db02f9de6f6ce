"""What the agent can do besides talking: the contract of a tool, the choice of tools, and those that come with us."""
