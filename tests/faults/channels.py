CHANNELS = {}


def unavailable(name):
    return None
