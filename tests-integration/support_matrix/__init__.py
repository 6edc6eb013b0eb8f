"""What cuDNN supports on every architecture, by our rules and by cuDNN itself, side by side.

``python -m support_matrix ask --out FILE`` asks the installed frontend and cuDNN;
``python -m support_matrix page FILE ...`` writes docs/support-matrix.md from the answers.
``nox -s support_matrix`` does both for each pair of versions.
"""
