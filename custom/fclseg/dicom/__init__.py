"""DICOM in and out: cine series to NIfTI, label maps to DICOM-SEG. Needs the extra: pip install 'fclseg[dicom]'."""
