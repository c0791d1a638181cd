"""Functions of one element: algorithms of eltwise and binary, traced expressions, and integer
functions in the type of their elements.
"""
