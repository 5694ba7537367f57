"""Small statistics. Half of it is to be written by an agent."""


def mean(values):
    raise NotImplementedError


def median(values):
    raise NotImplementedError


def spread(values):
    raise NotImplementedError


def scale(values, factor):
    raise NotImplementedError
