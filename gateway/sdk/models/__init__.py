"""What goes over the wire, shared by the server and its clients: nothing but pydantic and the standard library."""
