"""Skills: instructions, files and scripts that the operator gives to the agent, which loads them as it needs them."""
