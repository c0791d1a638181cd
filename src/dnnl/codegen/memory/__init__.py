"""Where elements are: addresses as affine forms of loop variables, and how operands are loaded
and stored there.
"""
