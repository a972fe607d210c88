"""``fclseg inbox``: a DICOM node that segments what an archive or a scanner sends, and sends the results back.

Needs the extra: pip install 'fclseg[inbox]'.
"""
